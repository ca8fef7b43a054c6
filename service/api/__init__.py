"""HTTP: routes, codecs and the one place where errors become statuses."""
