"""The life of a grant: renewal, repair, detection of losses, and the labels of owners."""
