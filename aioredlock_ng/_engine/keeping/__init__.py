"""From a grant to its end: renewal, repair, notice of loss, and the labels of owners."""
