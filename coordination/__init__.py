"""Everything that stands in etcd: session, election, key layout, fenced transactions, consistent watch."""
