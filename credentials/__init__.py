"""The secrets that a process uses: where they may be read, how a change of them is noticed, and how no text shows them."""
