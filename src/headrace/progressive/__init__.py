"""Stream joined with stream, complete results, in limited memory: one driver, partitionings, flush policies. [PQP] ch. 3-6"""
