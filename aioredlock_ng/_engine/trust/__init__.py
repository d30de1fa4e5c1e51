"""Nodes without a vote (quarantine, duplicate nodes), a missing quorum, and forced release."""
