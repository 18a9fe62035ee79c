/* libnnopbase: descriptors, executors and their status codes. */
#ifndef ACLNN_PY_ACLNN_BASE_H
#define ACLNN_PY_ACLNN_BASE_H

#include "../cdefs/base.h"
#include "acl_meta.h"

#endif
