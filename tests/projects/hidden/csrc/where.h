#pragma once

#include <stdexcept>

// The name of a header that is in a string, and with it that of the folder it was found in.
inline int checked(int value) {
  if (value < 0) {
    throw std::invalid_argument(__FILE__);
  }
  return value;
}
