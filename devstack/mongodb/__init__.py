"""MongoDB for development: releases, servers, replica sets."""
