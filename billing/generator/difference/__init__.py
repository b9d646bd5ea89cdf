"""What should be billed less what is: lines, coupons, minimums, the draft, and how it is stored."""
