"""From files to indices: catalog, formats, splits, batches, and how inputs are normalised."""
