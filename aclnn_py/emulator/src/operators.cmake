# The operators that the emulator computes: aclnn<name>, with a table entry emu::k<name> in an ops_*.cpp.
set(ACLNN_OPERATORS
  MoeFinalizeRoutingV2
  MoeFinalizeRoutingV2Grad
  MoeInitRoutingV2
  MoeTokenPermuteWithEp
  MoeTokenPermuteWithEpGrad
  MoeTokenUnpermuteWithEp
  MoeTokenUnpermuteWithEpGrad
)
