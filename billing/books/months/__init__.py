"""What billing adds to the figures of a month: sales, taxes, receivables, deferred and recurring revenue. Writes nothing."""
