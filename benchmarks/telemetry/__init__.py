"""What listening to events costs a client, and what it costs where nobody listens."""
