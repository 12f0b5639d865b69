"""Why did it die: the catalogue of signatures, the scan of logs, and the ranking of causes. Opens nothing."""
