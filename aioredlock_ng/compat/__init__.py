"""Names and meanings of other libraries, so that moving over is one changed import; never what new code should use."""
