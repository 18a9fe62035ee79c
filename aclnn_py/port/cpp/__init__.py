"""The evaluator of C++ samples, behind ``port.static``: syntax, values, statements, library functions, acl calls."""
