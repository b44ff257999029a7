"""Row changes and whole documents into MongoDB. Twelve modules: a plan, the commands of a plan, what their replies mean."""
