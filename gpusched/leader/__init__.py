"""Leadership as pure logic: who may write, and until when."""
