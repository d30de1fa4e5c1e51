"""The doctor: asks one node everything that the library needs of it, and judges what a set of nodes said."""
