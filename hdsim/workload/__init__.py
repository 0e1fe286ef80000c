"""Jobs: the columns of a workload, readers and writers of its files, generators."""
