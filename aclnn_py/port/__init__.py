"""Turn C++ samples of aclnn operators into Python scripts."""
