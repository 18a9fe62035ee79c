/* Single-operator calls of the acl runtime beyond the common part: none is emulated. */
#ifndef ACLNN_PY_ACL_OP_H
#define ACLNN_PY_ACL_OP_H

#include "acl_base.h"

#endif
