"""The life of a grant: renewal, repair, notice of loss, and the labels of owners."""
