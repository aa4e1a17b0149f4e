"""How does an object say where it stands? Each write is compared with what the API shows just before it is sent, and waits for its turn."""
