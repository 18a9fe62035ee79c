# The operators that the emulator computes: aclnn<name>, with a table entry emu::k<name> in an ops_*.cpp.
set(ACLNN_OPERATORS
  MoeFinalizeRoutingV2
  MoeFinalizeRoutingV2Grad
  MoeInitRoutingV2
  MoeTokenPermuteWithEp
  MoeTokenPermuteWithEpGrad
  MoeTokenUnpermuteWithEp
  MoeTokenUnpermuteWithEpGrad
  Abs Add Adds Arange BitwiseAndScalar BitwiseAndTensor BitwiseNot BitwiseOrScalar BitwiseOrTensor
  BitwiseXorScalar BitwiseXorTensor Cast Ceil Clamp ClampMax ClampMaxTensor ClampMin ClampMinTensor
  ClampTensor Cos Div Divs EqScalar EqTensor Erf Exp Floor GeScalar GeTensor Gelu GtScalar GtTensor InplaceAdd
  InplaceAdds InplaceBitwiseAndScalar InplaceBitwiseAndTensor InplaceBitwiseOrScalar InplaceBitwiseOrTensor
  InplaceBitwiseXorScalar InplaceBitwiseXorTensor InplaceCeil InplaceClampMax InplaceClampMaxTensor
  InplaceClampMinTensor InplaceCopy InplaceCos InplaceDiv InplaceDivs InplaceEqScalar InplaceEqTensor
  InplaceErf InplaceExp InplaceFillScalar InplaceFloor InplaceGeScalar InplaceGeTensor InplaceGtScalar
  InplaceGtTensor InplaceLeScalar InplaceLeTensor InplaceLog InplaceLog1p InplaceLogicalAnd InplaceLogicalNot
  InplaceLogicalOr InplaceLtScalar InplaceLtTensor InplaceMul InplaceMuls InplaceNeScalar InplaceNeTensor
  InplaceNeg InplaceOne InplacePowTensorScalar InplacePowTensorTensor InplaceReciprocal InplaceRelu
  InplaceRound InplaceRsqrt InplaceSigmoid InplaceSin InplaceSqrt InplaceSub InplaceSubs InplaceTanh
  InplaceZero LeScalar LeTensor Log Log1p LogicalAnd LogicalNot LogicalOr LtScalar LtTensor Maximum Minimum
  Mul Muls NeScalar NeTensor Neg PowScalarTensor PowTensorScalar PowTensorTensor Reciprocal Relu Round Rsqrt
  SWhere Sigmoid Sign Silu Sin Sqrt Sub Subs Tanh
)
