"""Versioned schemas: what each table looked like at each position. Pure; the shells of owner and processor do the etcd I/O."""
