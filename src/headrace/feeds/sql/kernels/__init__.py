"""What the functions and operators of SQL do with Arrow values: arrays and scalars in, arrays out, by the name of the kernel.

A null gives null, except where SQL's three-valued logic says otherwise; what cannot be computed, such as 1 / 0, is null too: one
odd item must not end a query.
"""

from headrace.feeds.sql.kernels import logic, numbers, places, texts, times

KERNELS = {**logic.KERNELS, **numbers.KERNELS, **texts.KERNELS, **times.KERNELS, **places.KERNELS}
