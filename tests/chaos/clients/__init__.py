"""What runs in the processes of a fault run; it imports nothing but the standard library and one
lock library.
"""
