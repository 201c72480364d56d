// SPDX-License-Identifier: Apache-2.0
/*
 * What Gleam's own client library looks like to a worker that is given its path by mistake.
 */
__attribute__((visibility("default"))) const char gleam_version[] = "0";
