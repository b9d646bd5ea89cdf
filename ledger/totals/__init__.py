"""The sums over all accounts, by day and credit type: a job counts them from the entries, and a spend never waits for that."""
