"""The permissions of operators, the record of their actions, and the parts that other applications add to their pages."""
