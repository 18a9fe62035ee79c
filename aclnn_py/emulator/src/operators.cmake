# The operators that the emulator computes: aclnn<name>, with a table entry emu::k<name> in an ops_*.cpp.
set(ACLNN_OPERATORS
  MoeFinalizeRoutingV2
  MoeFinalizeRoutingV2Grad
  MoeInitRoutingV2
  MoeTokenPermuteWithEp
  MoeTokenPermuteWithEpGrad
  MoeTokenUnpermuteWithEp
  MoeTokenUnpermuteWithEpGrad
  All Any Embedding InplaceScatter LogSoftmaxBackward Max MaxDim Min MinDim Scatter Stack
  FloorDivide FloorDivides GeluBackward InplaceMaskedFillScalar IsFinite RemainderTensorScalar
  RemainderTensorTensor Rsub Rsubs SigmoidBackward SiluBackward TanhBackward ThresholdBackward
  Abs Add Addmm Adds Amax Amin Arange ArgMax ArgMin BatchMatMul BitwiseAndScalar BitwiseAndTensor BitwiseNot
  BitwiseOrScalar BitwiseOrTensor BitwiseXorScalar BitwiseXorTensor Cast Cat Ceil Clamp ClampMax
  ClampMaxTensor ClampMin ClampMinTensor ClampTensor Cos Cumsum Div Divs EqScalar EqTensor Erf Exp Floor
  Gather GeScalar GeTensor Gelu GtScalar GtTensor IndexAdd IndexSelect InplaceAdd InplaceAddmm InplaceAdds
  InplaceBitwiseAndScalar InplaceBitwiseAndTensor InplaceBitwiseOrScalar InplaceBitwiseOrTensor
  InplaceBitwiseXorScalar InplaceBitwiseXorTensor InplaceCeil InplaceClampMax InplaceClampMaxTensor
  InplaceClampMinTensor InplaceCopy InplaceCos InplaceDiv InplaceDivs InplaceEqScalar InplaceEqTensor
  InplaceErf InplaceExp InplaceFillScalar InplaceFloor InplaceGeScalar InplaceGeTensor InplaceGtScalar
  InplaceGtTensor InplaceLeScalar InplaceLeTensor InplaceLog InplaceLog1p InplaceLogicalAnd InplaceLogicalNot
  InplaceLogicalOr InplaceLtScalar InplaceLtTensor InplaceMul InplaceMuls InplaceNeScalar InplaceNeTensor
  InplaceNeg InplaceOne InplacePowTensorScalar InplacePowTensorTensor InplaceReciprocal InplaceRelu
  InplaceRound InplaceRsqrt InplaceSigmoid InplaceSin InplaceSqrt InplaceSub InplaceSubs InplaceTanh
  InplaceZero LeScalar LeTensor Log Log1p LogSoftmax LogicalAnd LogicalNot LogicalOr LtScalar LtTensor Matmul
  Maximum Mean Minimum Mm Mul Muls NeScalar NeTensor Neg Permute PowScalarTensor PowTensorScalar
  PowTensorTensor Reciprocal ReduceSum Relu Round Rsqrt SWhere ScatterAdd Sigmoid Sign Silu Sin Softmax
  SoftmaxBackward Sort Sqrt Sub Subs Tanh Topk
)
