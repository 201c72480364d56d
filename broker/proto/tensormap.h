/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forms of a tensor map, as gleamTensorMap tells them apart. Fields that a form has no use for are empty.
 */
#ifndef GLEAM_PROTO_TENSORMAP_H
#define GLEAM_PROTO_TENSORMAP_H

enum tensormap_form {
	TENSORMAP_TILED,       /* box: boxDim */
	TENSORMAP_IM2COL,      /* box: the lower corner, upper: the other one; rank - 2 numbers each */
	TENSORMAP_IM2COL_WIDE, /* the same with one number each */
};

#define TENSORMAP_RANK_MAX 5u /* the hardware's */
#define TENSORMAP_SIZE 128u

#endif
