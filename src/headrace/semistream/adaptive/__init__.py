"""AdaptiveJoin, the join behind algorithm="auto": memory plan, hot set, look-ups, two executions."""
