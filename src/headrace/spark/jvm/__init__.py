"""Small streaming sources that run in the driver's JVM, as Java text that is compiled there."""
