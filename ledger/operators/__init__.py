"""What operators may do, the log of what they did, and the parts that applications add to their pages."""
