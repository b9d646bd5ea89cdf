"""The target less what is billed: lines, coupons, minimums, the draft, and its storage."""
