#pragma once

int part();
int machine();
