"""Fault runs on real servers: clients, a nemesis, histories, a checker that reads nothing else, and
a picture of the run.
"""
