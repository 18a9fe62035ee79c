/* Of CANN's header of this name: what the emulator has. */
#include "../aclnn/weight_size.h"
