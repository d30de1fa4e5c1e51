"""Exhaustive models of the rules that no test run can cover: fences, mutual exclusion, founding.

See docs/model.md.
"""
