#pragma once

int answer();
int other();
