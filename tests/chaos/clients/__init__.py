"""Programs that run in the processes of a fault run.

Besides the tests' own modules they import only the standard library and one lock library.
"""
