"""From files to batches: data sets, splits, batch indices, normalization, augmentation."""
