"""What happens at scale: measured on real servers, simulated in virtual time, calculated from both; docs/scaling.md."""
