"""Which replica may write, and until when? Leadership as pure logic, without I/O."""
