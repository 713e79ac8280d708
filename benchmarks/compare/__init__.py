"""This tree beside another revision: both measured in turns in one run, so that what else the machine does meets both."""
