/* Everything of the acl runtime, as samples include it. */
#ifndef ACLNN_PY_ACL_H
#define ACLNN_PY_ACL_H

#include "acl_base.h"
#include "acl_op.h"
#include "acl_rt.h"

#endif
